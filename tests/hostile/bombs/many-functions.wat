;; attack: 40,000 functions of one instruction.
;; expect: load -> structure (functions)

;; in core:
;; repeat 40000: (func)
