;; attack: `on-tick` never returns.
;; expect: on-tick -> out-of-fuel

;; in on-tick:
(loop $again (br $again)) (unreachable)
