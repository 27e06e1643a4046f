;; attack: Answers 0xff and 0x80 for true, which any byte but 0 is.
;; expect: decision -> ok
;; worker: 3

;; in keep:
(i32.store (i32.const 8192) (i32.const 0x80ff00))
(call $list (i32.const 8192) (local.get $rows))
