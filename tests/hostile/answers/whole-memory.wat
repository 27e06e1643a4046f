;; attack: All of its memory as costs.
;; expect: score -> bad-answer
;; memory: 128

;; in score:
(call $list (i32.const 0) (i32.const 1048576))
