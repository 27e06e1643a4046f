;; attack: `on-event` never returns.
;; expect: on-event -> out-of-fuel

;; in on-event:
(loop $again (br $again)) (unreachable)
