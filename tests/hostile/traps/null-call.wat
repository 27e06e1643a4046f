;; attack: Calls an empty place of a table.
;; expect: score -> trap

;; in core:
(type $f (func)) (table $t 1 funcref)

;; in score:
(call_indirect $t (type $f) (i32.const 0)) (unreachable)
