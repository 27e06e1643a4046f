;; attack: Logs for ever in the start function.
;; expect: instantiate -> out-of-fuel
;; imports: log

;; in core:
(func $start (loop $again (call $log (i32.const 2) (i32.const 1024) (i32.const 12)) (br $again)))
(start $start)
