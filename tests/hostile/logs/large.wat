;; attack: Logs 4 MB at once: more than one answer may make the host read.
;; expect: score -> bad-answer
;; memory: 100
;; imports: log

;; in score:
(call $log (i32.const 0) (i32.const 65536) (i32.const 4000000))
(call $list (local.get $numbers) (local.get $count))
