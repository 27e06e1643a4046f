;; attack: A classifier keeps a page of every event.
;; expect: on-event -> memory
;; calls: 200

;; in on-event:
(drop (memory.grow (i32.const 1))) (call $nothing)
