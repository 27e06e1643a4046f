;; attack: One function of 200,000 instructions.
;; expect: load -> structure (body_bytes)

;; in core:
(func (export "bomb") (param i32) (result i32)
(local.get 0)
;; repeat 100000: (i32.const #) i32.add
)
