"""The warm worker: a process that keeps a started Spark and runs `penstock run` for commands that hand over to it.

`handover` is the command's side and `worker` the other. They meet in the `worker_folder`, speak the protocol of `wire`,
and work together if `compatibility` finds no difference. A run that was handed over is the same code in another
process: the gate is untouched.
"""
