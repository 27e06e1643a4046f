;; attack: Calls a function as one of another type.
;; expect: score -> trap

;; in core:
(type $f (func))
(table $t 1 funcref)
(elem (table $t) (i32.const 0) func $bump)

;; in score:
(call_indirect $t (type $f) (i32.const 0)) (unreachable)
