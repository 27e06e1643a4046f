;; attack: Reads the same signal twice.
;; expect: plan -> refused

;; in configure:
(i64.store (i32.const 4408) (i64.load (i32.const 4400)))
(i32.store (i32.const 4156) (i32.const 2))
(i32.const 4096)
