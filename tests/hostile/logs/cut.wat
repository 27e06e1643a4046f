;; attack: Logs 1 MB at once: all but the first bytes of it are cut.
;; expect: decision -> ok
;; worker: 3
;; memory: 100
;; imports: log

;; in score:
(call $log (i32.const 0) (i32.const 65536) (i32.const 1000000))
(call $list (local.get $numbers) (local.get $count))
