;; attack: Reads the same name 500,000 times.
;; expect: configure -> bad-answer
;; memory: 100

;; in configure:
(i32.store (i32.const 4156) (i32.const 500000))
(i32.store (i32.const 4152) (i32.const 65536))
(i32.const 4096)
