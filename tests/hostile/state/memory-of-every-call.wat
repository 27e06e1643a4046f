;; attack: Keeps a page of every call.
;; expect: score -> memory
;; calls: 200

;; in score:
(drop (memory.grow (i32.const 1)))
(call $list (local.get $numbers) (local.get $count))
