;; attack: Logs a message that lies beyond its memory.
;; expect: score -> bad-answer
;; imports: log

;; in score:
(call $log (i32.const 0) (i32.const 0) (i32.const 0x40000000))
(unreachable)
