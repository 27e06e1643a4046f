;; attack: The filter answers for 4 million rows.
;; expect: keep -> bad-answer
;; memory: 128

;; in keep:
(call $list (i32.const 0) (i32.const 4000000))
