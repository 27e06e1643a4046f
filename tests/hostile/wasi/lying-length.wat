;; attack: Writes more bytes than its memory has.
;; expect: score -> bad-answer
;; imports: wasi

;; in score:
(call $write (call $stdout) (i32.const 65000) (i32.const 0x7fffffff) (i32.const 9000)) (unreachable)
