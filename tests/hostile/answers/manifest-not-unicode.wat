;; attack: A manifest whose name is no text.
;; expect: describe -> bad-answer

;; in describe:
(i32.store (i32.const 256) (i32.const 0xffffffff)) (i32.const 64)
