"""The live display of `penstock run`: frames drawn from Progress, and the region of the terminal they are painted in.

`pace` and `view` compute what to show, `frame` and `summary` draw it, `region` paints it and `live` updates it. Some of
these files import Rich, so they are imported only when there is something to show.
"""
