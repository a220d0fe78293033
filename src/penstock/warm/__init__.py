"""The warm worker: a process that keeps a started Spark and runs `penstock run` for commands that hand over to it.

`handover` is the command's side, `worker` the other; `places` says where they meet, `wire` what they say, `sameness`
what must be equal on both sides. A run that was handed over is the same code in another process: the gate is
untouched.
"""
