;; attack: Writes to a stream that it was never given.
;; expect: score -> bad-answer
;; imports: wasi

;; in score:
(call $write (i32.const 77) (i32.const 1100) (i32.const 1) (i32.const 9000)) (unreachable)
