;; attack: Two functions call each other through a table until there is no stack.
;; expect: score -> trap

;; in core:
(type $f (func))
(table $t 2 2 funcref)
(elem (table $t) (i32.const 0) func $one $two)
(func $one (call_indirect $t (type $f) (i32.const 1)))
(func $two (call_indirect $t (type $f) (i32.const 0)))

;; in score:
(call $one) (unreachable)
