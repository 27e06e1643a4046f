;; attack: Resolves 50,000 requests at one event.
;; expect: on-event -> bad-answer
;; memory: 100

;; in on-event:
(call $list (i32.const 65536) (i32.const 50000))
