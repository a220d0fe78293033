"""What `penstock run` shows on a terminal: pure pictures of Progress, and the area of the terminal they are painted in.

`pace` and `view` say what is shown, `frame` and `closing` how, `area` where, and `live` keeps it moving. Rich is
imported by some of these files, so nobody imports them before there is something to show.
"""
