;; attack: A function with 49,000 locals.
;; expect: load -> structure (locals)

;; in core:
(func (export "bomb")
;; repeat 49000: (local i64)
)
