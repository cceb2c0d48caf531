"""The machine's equations as whole-sequence CPU kernels with hand-derived gradients, room by room as in the reference.

controller.py     nsm.controllers          h_t, and back
programs.py       nsm.programs             w^p and ξ, and back
ntm.py lrua.py    nsm.memories             the tape, and back
dnc.py                                     with usage.py and links.py
recurrence.py     nsm.machine              Algorithm 1 over time, forward and backward
chunks.py, passes.py, operators.py         a batch, chunk by chunk; a pass from Python; a torch operator
lanes.py, records.py, functions.py, algebra.py    what they are written in
"""
