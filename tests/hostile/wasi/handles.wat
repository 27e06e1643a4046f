;; attack: Takes handles and never gives one back.
;; expect: score -> bad-answer
;; imports: wasi

;; in score:
(loop $again (drop (call $later (i64.const 1))) (br $again)) (unreachable)
