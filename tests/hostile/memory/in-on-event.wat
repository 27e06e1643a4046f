;; attack: A classifier grows its memory at an event.
;; expect: on-event -> memory

;; in on-event:
(drop (memory.grow (i32.const 1000))) (unreachable)
