;; attack: 50,000 element segments.
;; expect: load -> structure (element_segments)

;; in core:
(table $t 1 funcref)
;; repeat 50000: (elem (table $t) (i32.const 0) func $bump)
