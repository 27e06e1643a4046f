;; attack: Writes just beyond its memory.
;; expect: score -> trap

;; in score:
(i64.store (i32.const 65529) (i64.const -1)) (unreachable)
