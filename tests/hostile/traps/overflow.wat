;; attack: Divides the least number by -1.
;; expect: score -> trap

;; in score:
(drop (i32.div_s (i32.const 0x80000000) (i32.sub (local.get $i) (i32.const 1)))) (unreachable)
