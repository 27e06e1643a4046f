;; attack: Logs empty messages for ever, which no count of bytes stops.
;; expect: score -> out-of-fuel
;; imports: log

;; in score:
(loop $again (call $log (i32.const 0) (i32.const 1024) (i32.const 0)) (br $again))
(unreachable)
