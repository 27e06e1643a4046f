;; attack: Divides by zero.
;; expect: score -> trap

;; in score:
(drop (i32.div_u (i32.const 1) (local.get $i))) (unreachable)
