;; attack: 200,000 costs for three rows: more than the host would hold.
;; expect: score -> bad-answer
;; memory: 64

;; in score:
(call $list (i32.const 0) (i32.const 200000))
