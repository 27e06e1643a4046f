;; attack: A function type of 900 parameters and 900 results, called 500 times.
;; expect: load -> structure (signature)

;; in core:
(type $huge (func
;; repeat 900: (param i64)
;; repeat 900: (result i64)
))
(table $huge 1 funcref)
(func (export "bomb")
;; repeat 900: i64.const #
;; repeat 500: (call_indirect $huge (type $huge) (i32.const 0))
;; repeat 900: drop
)
