;; attack: Logs for ever.
;; expect: score -> out-of-fuel
;; imports: log

;; in score:
(loop $again (call $log (i32.const 0) (i32.const 1024) (i32.const 12)) (br $again))
(unreachable)
