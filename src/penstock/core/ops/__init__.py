"""Change ops: many tables change one entity, and a fold keeps one current row for each entity.

A document is one change of one table, as a producer writes it (`wire`). `fold` is the reference: every other
implementation of it, in Spark or SQL, must give the same state.

    reason = refusal(document)               # None: the document is valid; a receiver refuses the others
    folded = fold(State(), shape, [Row(1, document), Row(2, another)])
    folded.state.entities                    # one current row per entity
    folded.quarantined                       # ops that were not applied, each with its reason
"""

from penstock.core.ops.fold import Folded, Quarantined, Row, fold, forget_early
from penstock.core.ops.layout import FEED_COLUMNS, Layout
from penstock.core.ops.state import FanOut, Record, Shape, State
from penstock.core.ops.wire import VERSION, header_refusal, key_text, op_refusal, refusal, value_text

__all__ = [
    "FEED_COLUMNS",
    "VERSION",
    "FanOut",
    "Folded",
    "Layout",
    "Quarantined",
    "Record",
    "Row",
    "Shape",
    "State",
    "fold",
    "forget_early",
    "header_refusal",
    "key_text",
    "op_refusal",
    "refusal",
    "value_text",
]
