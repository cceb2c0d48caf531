"""The machine's equations as whole-sequence CPU kernels with hand-derived gradients, room by room as in the reference.

controller.py     nsm.controllers          h_t, and back
programs.py       nsm.programs             w^p and ξ, and back
ntm.py lrua.py    nsm.memories             the tape, and back
dnc.py
recurrence.py     nsm.machine              Algorithm 1 over time, forward and backward
lanes.py, functions.py, algebra.py         what they are written in
"""
