;; attack: 50,000 globals.
;; expect: load -> structure (globals)

;; in core:
;; repeat 50000: (global i32 (i32.const #))
