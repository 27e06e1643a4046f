;; attack: Logs at a level that does not exist.
;; expect: score -> bad-answer
;; imports: log

;; in score:
(call $log (i32.const 77) (i32.const 1024) (i32.const 12))
(unreachable)
