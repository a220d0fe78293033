# What `__init__.py` gives on demand, for type checkers; there, an import would be an edge that no room may have.
from penstock.api import PenstockError as PenstockError
from penstock.api import Run as Run
from penstock.api import RunFailed as RunFailed
from penstock.api import Summary as Summary
from penstock.api import read as read
from penstock.api import run as run
from penstock.api import sync as sync

__version__: str
