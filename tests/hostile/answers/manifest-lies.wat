;; attack: A manifest with a name of 4 GiB.
;; expect: describe -> bad-answer

;; in describe:
(i32.store (i32.const 68) (i32.const -1)) (i32.const 64)
