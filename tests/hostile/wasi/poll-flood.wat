;; attack: Polls a list of a hundred million handles.
;; expect: score -> bad-answer
;; imports: wasi
;; memory: 1 128

;; in score:
(call $poll (i32.const 0) (i32.const 100000000) (i32.const 9000)) (unreachable)
