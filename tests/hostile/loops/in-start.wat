;; attack: The start function never returns.
;; expect: instantiate -> out-of-fuel

;; in core:
(func $start (loop $again (br $again)) (unreachable)) (start $start)
