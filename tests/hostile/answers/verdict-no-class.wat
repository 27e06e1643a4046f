;; attack: Rejects a request with an error class that does not exist.
;; expect: classify -> bad-answer

;; in classify:
(call $reject (i32.const 99))
