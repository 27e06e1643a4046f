;; attack: Logs what is no text: the host says so in its place.
;; expect: decision -> ok
;; worker: 3
;; imports: log

;; in score:
(i32.store (i32.const 8192) (i32.const -1))
(call $log (i32.const 0) (i32.const 8192) (i32.const 4))
(call $list (local.get $numbers) (local.get $count))
