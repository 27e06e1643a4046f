;; attack: A manifest with a description of 4 MB.
;; expect: describe -> bad-answer
;; memory: 100

;; in describe:
(i32.store (i32.const 80) (i32.const 65536))
(i32.store (i32.const 84) (i32.const 4000000))
(i32.const 64)
