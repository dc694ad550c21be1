"""Cost models of operators, the peaks of chips, and the roofline that joins them.

Pure functions, independent of any timeline: `cost.estimate` (FLOPs and bytes of a call),
`family.kernel_family` (what a kernel's name tells), `chips.find_chip` and `roofline.roofline`.
"""
