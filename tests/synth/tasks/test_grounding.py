"""The grounding veto: what answers may say of what was observed, and what they may not, in both languages."""

from __future__ import annotations

import json
import time
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from synth.tasks.grounding import Sources, is_grounded
from synth.text.claims import NameIndex, normalise, read_claims
from synth.worlds import WORLDS, make_world

PLACES = {
    "total": 7,
    "places": [
        {
            "place_id": "pl-0016",
            "name": "Cedar Museum",
            "name_zh": "雪松博物馆",
            "coords": "30.21079,120.21245",
            "address": "172 Swallow Road, Lakeside District",
            "address_zh": "湖滨区飞燕路172号",
            "rating": 4.3,
            "reviews": 1219,
            "price": 45,
            "hours": "08:30-21:00",
            "features": ["parking spaces (停车位)", "free wifi (无线网络)"],
            "phone": "0599-85404001",
            "distance_m": 1350,
        },
        {"place_id": "pl-0017", "name": "Little Otter Taproom", "name_zh": "小小水獭小酒馆", "rating": 4.0, "reviews": 88, "price": 99},
        {"place_id": "pl-0018", "name": "Crane Tea House No. 10", "name_zh": "白鹤茶舍十号店", "rating": 3.8, "reviews": 19, "price": 61},
    ],
}
ROUTE = {
    "routes": [
        {
            "mode": "transit",
            "distance_m": 13519,
            "duration_min": 90,
            "walk_m": 350,
            "fare_yuan": 6,
            "transfers": 2,
            "legs": [{"line": "Metro Line 8", "line_zh": "地铁8号线", "stops": 3}],
            "roads": ["Violet Road"],
            "departure": "2026-05-17T09:30",
            "arrival": "2026-05-17T15:15",
        }
    ]
}
WEATHER = {"days": [{"date": "2026-05-20", "condition": "sunny", "high_c": 24, "low_c": 16, "rain_percent": 22, "wind": "north 17 km/h"}]}
REQUEST = "how do I get to Cedar Museum from Willow Park, under 200 CNY, with 3 friends"


def grounded(answer: str, *results: object, said: str = REQUEST, world: str = "city", rules: bool = True) -> bool:
    """rules: whether the world's system message was context too, with the figures in it."""
    shown = [json.dumps(result, ensure_ascii=False) for result in (results or (PLACES, ROUTE, WEATHER))]
    texts = [normalise(text) for text in (said, *shown)]
    system = normalise(make_world(world, 0).system_prompt) if rules else ""
    return is_grounded(answer, Sources(WORLDS[world], texts, shown, (texts[0], system), frozenset()), names_of(world))


@cache
def names_of(world: str) -> tuple[NameIndex, NameIndex]:
    made = make_world(world, 0)
    return NameIndex(made.known_names()), NameIndex(made.possible_names())


FAITHFUL = """
It opens at 08:30h.
Open 08:30 hrs to 21:00 hrs.
The trip takes 1:30 h.
On 20.05.2026 it is sunny.
On 20/05/2026 it is sunny.
On 5/20/2026 it is sunny.
5 月 20 日 是晴天
13 km and 519 m
13公里519米
1 hr 30
an hour and thirty minutes
leaving at 9.30
leaving at 0930 hrs
On 20-May-2026 it is sunny.
leaves at nine thirty in the morning
nine thirty in the morning it leaves
24ºC at most
13 519 m
[1] Cedar Museum
6 Chinese yuan
over 1,200 reviews
【4.3、45元】
It is 13,519 m.
It's about 13.5 km away.
roughly 13.5 kilometres
Distance: 13.52km
The trace is three hundred and fifty metres.
350m on foot
It takes an hour and a half.
It takes one and a half hours.
Travel time: 1h30
Travel time 1 h 30 min
1 hour and 30 minutes
1.5 hours
90 mins
ninety minutes
It takes 1:30 hours.
The fare is ¥6.
The fare is six yuan.
6 RMB for the ride
CNY 6
It costs 6.
Tickets are 45 yuan each, rated 4.3/5.
It is rated 4.3 out of 5 from 1,219 reviews.
a 4.3-star museum with about 1.2k reviews
4.3 stars (1219 reviews)
Two transfers, three stops on Metro Line 8.
Leave at 9:30 am and arrive at 3:15 pm.
You leave at half past nine and get there at quarter past three.
Depart 9.30am
Departs 09:30, arrives 15:15 on May 17.
on 17 May at nine thirty
on Sunday, the 17th of May
Sunday 17 May 2026
Sun, May 17th
It closes at nine in the evening.
Open until 9 p.m.
open from half past eight to 9 pm
On May 20 it will be sunny, 16 to 24 °C.
16-24 degrees with a 22% chance of rain
Highs of 24 degrees Celsius; 22 percent chance of rain
Wind from the north at 17 km/h
I found 7 places; seven in total.
I found three places for you.
Here are the two best options:
1. Cedar Museum
2. Little Otter Taproom
One of them is Cedar Museum. One datetime please!
The cheapest of them costs 45 yuan; the first is 1.35 km away.
It is at 172 Swallow Road in Lakeside District, phone 0599-85404001.
Call 0599-85404001.
**Cedar Museum** - 4.3 stars - ¥45
Estimated Travel Time: 90 minutes
Crane Tea House No. 10 is rated 3.8
The Cedar Museum is 24/7? No, 08:30 to 21:00.
I am 100% sure.
It is under your budget of 200 yuan for you and your three friends.
13.5公里左右
全程约13.5公里，需要1小时30分钟
大约一个半小时
需要一个半小时，票价六元
车费6块钱
步行三百五十米
评分4.3分，共1219条点评
评分4.3（满分5分）
门票45元/人
人均45块
换乘两次，坐三站
早上九点半出发，下午三点一刻到达
上午9:30出发，下午3:15到
9点半出发，15点15分到
5月17日（周日）出发
5月17号上午9点30分
2026年5月17日
十七号出发，五月十七日到
五月二十日晴，16到24度
气温16～24℃，降雨概率百分之二十二
降水概率22%
共找到7个地点
一共有七家
为您找到三家
前两家是雪松博物馆和小小水獭小酒馆
地址是湖滨区飞燕路172号，电话0599-85404001
沿紫罗兰路走
坐地铁8号线
营业到晚上九点
早上八点半开门，晚上9点关门
稍等一下，一共就这些，十分方便，一点也不远
白鹤茶舍十号店评分3.8
预算200元以内
Cedar Museum（雪松博物馆）很不错
The museum is open 8:30 am–9 pm.
Open 8:30-21:00
Opening hours: 8:30 AM to 9:00 PM
Fare: 6 yuan (about 45 yuan for the ticket)
**Route summary**
- Distance: 13.5 km
### Your Trip At A Glance
Cedar Museum's rating is 4.3 stars, and it's 1.4 km from you.
Bring your 3 friends; two hundred yuan is more than enough.
The total walking distance is 0.35 km.
It takes an hour and thirty minutes.
It's 90 minutes away, i.e. one hour and thirty minutes.
You'll arrive mid-afternoon, at a quarter past three.
You will get there at 15:15 (3:15 pm).
The fare comes to 6.00 yuan.
Tickets: 45元 (RMB 45)
one thousand two hundred and nineteen reviews
Rating: 4.3
Rain probability 22%; temperatures between 16 and 24.
Take Metro Line 8 for three stops, then trace 350 m.
the museum (4.3★)
There's a one-in-five... sorry, I can tell you it's sunny.
It's on the 20th that the weather is sunny.
I couldn't find anything else. Is there anything else I can help you with?
I'd be happy to help! The Cedar Museum, rated 4.3, is your best bet.
Great news: Cedar Museum is only 1.35 kilometers away!
The first leg has three stops.
First, take Metro Line 8. Second, trace for 350 metres.
Both places have parking. Of the three, Cedar Museum is the best rated.
评分为4.3星，距您约1.4公里
距离为1.35千米，人均消费45元
营业时间：8:30-21:00
营业时间为早上8:30至晚上9:00
营业时间8点半到21点
全程13.5km，耗时1.5h，花费6元
花费一个半钟头
耗时90分
下周三是5月20日，星期三
票价仅需6元，比预算的200元便宜得多
最高24℃，最低16℃，北风17公里/小时
风速17km/h
有百分之二十二的可能下雨
有两成左右的降雨概率
三个地点中，雪松博物馆评分最高
这三家都不错，其中一家最便宜
第一站是雪松博物馆，第二站是小小水獭小酒馆
我为您查到以下三个地点
点评数为1219条（约1200条）
大概走350米，五六分钟就到
步行350m左右
出发时间为9:30，到达时间为15:15。
周日上午九点三十分
about 1½ hours
The fare is **6** yuan, _6 yuan_ or `6 yuan`.
It takes **90** minutes; rated **4.3**/5.
- **Cedar Museum** - **45** yuan, __4.3__ stars
leaves at **9:30** and closes at **9** pm on _May 17_
**16**-**24** °C, **22%** chance of rain
评分**4.3**分，票价**45**元，共**7**个地点
Fare...6 yuan, distance approx.13.5 km
车费……6元
Crane Tea House No.10
top 3
第2站是雪松博物馆
"""

INVENTED = """
It opens at 07:30h.
Open 08:45 hrs.
The trip takes 1:50 h.
On 22.05.2026 it is sunny.
On 22/05/2026 it is sunny.
5 月 22 日 是晴天
13 km and 919 m
1 hr 50
leaving at 0850 hrs
On 22-May-2026 it is sunny.
nine forty in the morning it leaves
26ºC at most
13 919 m
46 Chinese yuan
over 1,100 reviews
It is 14.9 km away.
It takes 1350 minutes.
The fare is 90 yuan.
It takes six minutes.
The fare is $6.
45 dollars
45美元
It is 172 minutes away.
four hundred metres on foot
It takes two hours.
It takes an hour.
half an hour
rated 4.7
评分4.7
4.8 out of 5
It has 950 reviews.
Four transfers
五站
换乘四次
9 stops away
30% chance of rain
降雨概率百分之四十
highs of 28 degrees
Leave at 10:05.
leaves at quarter to eight
at 4 pm
下午四点出发
十点半出发
on May 19
5月19日
on Monday
周二出发
2026-06-17
I found 12 places.
一共十二家
It is next to Silver Mall.
在白银商城旁边
near the Harbour View Hotel
Ask Dr. Miller about it.
Take Tiger Road.
走白虎大道
乘坐地铁3号线
Metro Line 5
fly with Baiyun Wings
pl-0999
Crane Tea House No. 7
白鹤茶舍七号店
call 0599-81111111
at 391 Swallow Road, pay 45
wind at 29 km/h
about 2k reviews
需要两个小时
需要半小时
三公里
八十元
周日上午九点四十分
最高27℃
北风25公里/小时
It's 2.4 km away
rated 3.4 stars
It has 2,119 reviews
Tickets: £45
The toll is 12 yuan.
Open until 10 pm.
arriving at 3:45 pm
at quarter past four
in two and a half hours
三小时
需要2小时20分钟
2 h 20 min
花费八块钱
评分3.5星
六月十七日
星期四出发
a dozen transfers
twenty stops
约十五公里
It closes at noon.
中午12点关门
距离2.5千米
湖滨区飞燕路391号
1,912 reviews
40 percent
near Copper Library
at the Golden Dragon Restaurant
with Lanchuan Air
靠近紫铜图书馆
via Sunrise Avenue
走朝晖大道
at Lucky Maple Bank
Bus 47
in Northgate District
北门区
fly to Beijing
北京
about 2½ hours
您和三位朋友一共四个人
The fare is _47_ yuan.
The fare is __47__ yuan.
The fare is **90** yuan.
It takes `90` km.
The code is `47`.
on _May 19_
on `May` 19
票价**90**元
需要`3`小时
The fare: ...47 yuan
the fare is…47 yuan
approx.47 km
Crane Tea House No.47
bag_47
top 47
第47路
0 reviews
共0张
0 seats left
near the Harbour View Hotel in der Großen Straße
"""


@pytest.mark.parametrize("answer", FAITHFUL.strip().split("\n"))
def test_what_was_observed_may_be_told_in_any_way(answer: str) -> None:
    assert grounded(answer)


@pytest.mark.parametrize("answer", INVENTED.strip().split("\n"))
def test_what_was_not_observed_may_not_be_told(answer: str) -> None:
    assert not grounded(answer)


def test_list_marks_number_the_answer_itself() -> None:
    assert grounded("1) Cedar Museum, 45 yuan\n2) Little Otter Taproom, 99 yuan\n3) Crane Tea House No. 10, 61 yuan")
    assert not grounded("1) Cedar Museum, 47 yuan\n2) Little Otter Taproom, 99 yuan")


# ---- any value, in any rendering --------------------------------------------------------------------------------------------

RENDERED = {
    "distance_m": ("{0} m", "{0:,} metres", "{0}米", "{1:.3f} km", "{1:.3f}公里"),
    "duration_min": ("{0} minutes", "{0} min", "{0}分钟", "{2} h {3} min", "{2}小时{3}分钟", "{2}:{3:02d} hours"),
    "price": ("¥{0}", "{0} yuan", "{0:.2f} RMB", "{0}元", "{0}块钱", "CNY {0}"),
    "high_c": ("{0} °C", "{0} degrees", "{0}度", "{0}℃"),
    "rain_percent": ("{0}%", "{0} percent", "百分之{0}", "{0} ％"),
    "reviews": ("{0} reviews", "{0:,} reviews", "{0}条点评"),
}


def rendered(form: str, value: int) -> str:
    return form.format(value, value / 1000, value // 60, value % 60)


FORMS = [(field, form) for field, forms in RENDERED.items() for form in forms]


@given(st.sampled_from(FORMS), st.integers(1, 50_000))
def test_any_value_may_be_told_in_any_unit(case: tuple[str, str], value: int) -> None:
    field, form = case
    assert grounded(f"It says {rendered(form, value)}.", {field: value}, said="what does it say", rules=False)


@given(st.sampled_from(FORMS), st.integers(1, 90_000), st.floats(1.02, 3))
def test_no_value_outside_the_tolerance_may_be_told(case: tuple[str, str], value: int, factor: float) -> None:
    field, form = case
    other = max(round(value * factor), value + 1)
    if (field, other) == ("rain_percent", 100):  # a figure of speech
        other += 1
    if other - value > 0.01 * value:
        assert not grounded(f"It says {rendered(form, other)}.", {field: value}, said="what does it say", rules=False)


@given(st.sampled_from(FORMS), st.sampled_from(sorted(RENDERED)), st.integers(30, 99_999))
def test_a_value_of_another_dimension_supports_nothing(case: tuple[str, str], other: str, value: int) -> None:
    field, form = case
    if other != field and value != 100:
        assert not grounded(f"It says {rendered(form, value)}.", {other: value}, said="what does it say", rules=False)


@given(st.sampled_from(FORMS), st.integers(1, 50_000))
def test_a_value_of_which_nothing_tells_what_it_is_supports_any(case: tuple[str, str], value: int) -> None:
    _, form = case
    assert grounded(f"It says {rendered(form, value)}.", {"figure": value}, said="what does it say", rules=False)


@given(st.integers(0, 23), st.integers(0, 59))
def test_a_time_may_be_told_by_either_clock(hour: int, minute: int) -> None:
    observed = {"opens": f"{hour:02d}:{minute:02d}"}
    half, twelve = "am" if hour < 12 else "pm", (hour - 1) % 12 + 1
    for told in (f"{hour:02d}:{minute:02d}", f"{twelve}:{minute:02d} {half}", f"{hour}点{minute:02d}分" if hour else f"00:{minute:02d}"):
        assert grounded(f"It opens at {told}.", observed, said="when")
    other = (hour * 60 + minute + 61) % 1440
    assert not grounded(f"It opens at {other // 60:02d}:{other % 60:02d}.", observed, said="when", rules=False)


# ---- other worlds -----------------------------------------------------------------------------------------------------------


def test_a_world_says_what_its_fields_are() -> None:
    """Given prices in dollars and pieces in stock, when one is told as the other, then it is invented."""
    row = {"product": "p19", "price": 22, "stock": 7}
    for answer in ("p19 costs $22, 7 in stock.", "22美元，库存7件", "共22元", "twenty-two dollars"):
        assert grounded(answer, row, said="p19?", world="retail")
    for answer in ("It costs 7 dollars.", "库存22件", "¥22", "22 euros", "p20 costs 22 dollars"):
        assert not grounded(answer, row, said="p19?", world="retail")


def test_fields_of_a_spec_have_the_units_of_the_spec() -> None:
    row = {"id": "s15", "kind": "green", "rate": 2.5, "months": 24, "minimum": 700}
    for answer in ("2.5 percent a year... for 24 months, from 700 dollars", "two years", "利率百分之2.5，期限二十四个月", "两年期"):
        assert grounded(answer, row, said="tell me about s15", world="banking"), answer
    for answer in ("24 percent", "at least 24 dollars", "7 months", "三年", "700 months", "2.5 months"):
        assert not grounded(answer, row, said="tell me about s15", world="banking"), answer


def test_a_name_that_another_domain_drew_is_invented() -> None:
    """Given what one domain shows, when a person or company of another is named, in whole, then nobody said it."""
    row = {"id": "c020", "name": "Clara Lindt"}
    for answer in ("It is Clara Lindt.", "客户是克拉拉·林特。", "Ms. Lindt", "Clara Lindt's account"):
        assert grounded(answer, row, said="who is c020", world="banking"), answer
    known = make_world("banking", 0).known_names()
    strangers = [name for name in make_world("hotel", 0).known_names() if name not in known]
    assert len(strangers) > 20
    for name in strangers:
        assert not grounded(f"It is {name}.", row, said="who is c020", world="banking"), name


def test_counts_may_be_those_of_a_list() -> None:
    listed = {"rows": [{"id": f"k{number:03d}"} for number in range(4)]}
    for answer in ("There are four cards.", "You have 4 cards.", "一共四张", "前两张", "the two cards", "两种方式"):
        assert grounded(answer, listed, said="my cards", world="banking"), answer
    for answer in ("There are six cards.", "You have 9 cards.", "一共六张"):
        assert not grounded(answer, listed, said="my cards", world="banking"), answer


def test_rules_of_the_system_message_may_be_told_with_their_units() -> None:
    said = "can I transfer 3000"
    assert grounded("Only premier customers transfer more than two thousand dollars at once.", {}, said=said, world="banking")
    assert not grounded("Only premier customers transfer more than 2600 dollars at once.", {}, said=said, world="banking")
    assert not grounded("按规定，单笔最多转2600美元。", {}, said=said, world="banking")


def test_no_text_makes_the_veto_fail() -> None:
    for text in ("一" * 20_000, "9" * 20_000, "1e999", "1️⃣" * 500, "twenty " * 2_000, "1:1" * 2_000, "\x00½Ⅻ²", "\n1" * 2_000):
        assert grounded(text) in (True, False)
    for text in ("hundred " * 2_500, "dozen " * 4_500):
        assert grounded(text) in (True, False)


@pytest.mark.parametrize("text", ["9" * 10_000, "٣" * 10_000, "\n" * 10_000, " " * 10_000, "9," * 5_000, "Ab " * 3_300, "1 h " * 2_500])
def test_a_long_answer_takes_no_long_time(text: str) -> None:
    """Given 10,000 characters that patterns could try again from every place, then the best of three readings takes half a second."""
    grounded("")

    def cpu_s() -> float:
        started = time.process_time()
        grounded(text)
        read_claims(normalise(text))
        return time.process_time() - started

    assert min(cpu_s() for _ in range(3)) < 0.5
