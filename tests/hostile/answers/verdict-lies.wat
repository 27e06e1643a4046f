;; attack: Rejects a request with a sentence of 4 GiB.
;; expect: classify -> bad-answer

;; in classify:
(drop (call $reject (i32.const 0)))
(i32.store (i32.const 2100) (i32.const -1))
(i32.const 2056)
