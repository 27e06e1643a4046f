;; attack: The filter answers for one row too few.
;; expect: keep -> bad-answer

;; in keep:
(call $list (i32.const 8192) (i32.sub (local.get $rows) (i32.const 1)))
