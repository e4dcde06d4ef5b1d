"""Dialogs: one a file. Each is built from frozen values and hands back a verdict, or None for "nothing happens".

They read nothing and decide nothing but form: an empty reason, a malformed duration, a missing job. Whether a verdict
is allowed is the ledger's question. What all of them share (`base`):

* a fixed head and foot; what comes from outside stands between them and can push neither away;
* they are deaf for a moment after they open, so that a burst of Enter chooses nothing;
* the safe button comes first; Escape is always safe; Enter in a field never confirms;
* the more a decision can harm, the more must be typed before its button wakes up;
* approve and cancel count down before they are handed back, and Escape takes them back.
"""
